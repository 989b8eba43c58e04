CREATE TABLE accounts (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE notes (id INTEGER PRIMARY KEY, account_id INTEGER REFERENCES accounts (id), body TEXT);
CREATE INDEX notes_account ON notes (account_id);
CREATE TRIGGER notes_body BEFORE INSERT ON notes WHEN new.body = '' BEGIN
    SELECT RAISE(ABORT, 'empty; refused');
END;
