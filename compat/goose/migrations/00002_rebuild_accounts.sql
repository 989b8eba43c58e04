-- +goose NO TRANSACTION
-- +goose Up
PRAGMA foreign_keys = off;
DROP TRIGGER ledger_moves_balance;
CREATE TABLE accounts_new (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, balance INTEGER NOT NULL DEFAULT 0 CHECK (balance >= 0));
INSERT INTO accounts_new SELECT id, name, balance FROM accounts;
DROP TABLE accounts;
ALTER TABLE accounts_new RENAME TO accounts;
PRAGMA foreign_keys = on;

-- +goose Down
SELECT 1;
