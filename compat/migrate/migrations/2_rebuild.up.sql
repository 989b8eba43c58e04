CREATE TABLE accounts_new (id INTEGER PRIMARY KEY, name TEXT NOT NULL COLLATE NOCASE UNIQUE);
INSERT INTO accounts_new SELECT id, name FROM accounts;
DROP TABLE accounts;
ALTER TABLE accounts_new RENAME TO accounts;
