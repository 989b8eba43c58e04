PRAGMA foreign_keys = off;

--bun:split

CREATE TABLE books_new (id INTEGER PRIMARY KEY AUTOINCREMENT, author_id INTEGER NOT NULL REFERENCES authors (id), title TEXT NOT NULL, pages INTEGER NOT NULL DEFAULT 0);
INSERT INTO books_new (id, author_id, title) SELECT id, author_id, title FROM books;
DROP TABLE books;
ALTER TABLE books_new RENAME TO books;

--bun:split

PRAGMA foreign_keys = on;
