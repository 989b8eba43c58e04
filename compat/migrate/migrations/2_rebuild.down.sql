ALTER TABLE accounts RENAME TO accounts_old;
CREATE TABLE accounts (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
INSERT INTO accounts SELECT id, name FROM accounts_old;
DROP TABLE accounts_old;
