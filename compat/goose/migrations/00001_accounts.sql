-- +goose Up
CREATE TABLE accounts (id INTEGER PRIMARY KEY, name TEXT NOT NULL, balance INTEGER NOT NULL DEFAULT 0);
CREATE TABLE ledger (id INTEGER PRIMARY KEY, account_id INTEGER NOT NULL REFERENCES accounts (id), amount INTEGER NOT NULL);

-- +goose StatementBegin
CREATE TRIGGER ledger_moves_balance AFTER INSERT ON ledger
BEGIN
    UPDATE accounts SET balance = balance + new.amount WHERE id = new.account_id;
    SELECT RAISE(ABORT, 'overdrawn; refused') FROM accounts WHERE id = new.account_id AND balance < 0;
END;
-- +goose StatementEnd

-- +goose Down
DROP TABLE ledger;
DROP TABLE accounts;
