-- name: CreateAuthor :one
INSERT INTO authors (name, bio) VALUES (?, ?) RETURNING *;

-- name: GetAuthor :one
SELECT * FROM authors WHERE id = ?;

-- name: CreateBook :execlastid
INSERT INTO books (author_id, title, published) VALUES (?, ?, ?);

-- name: ListBooks :many
SELECT authors.name, books.title, books.published
FROM books JOIN authors ON authors.id = books.author_id
WHERE authors.id = sqlc.arg(author)
ORDER BY books.id;

-- name: SearchBooks :many
SELECT title FROM books WHERE id IN (sqlc.slice(ids)) ORDER BY id;

-- name: RenameAuthor :execrows
UPDATE authors SET name = @name WHERE id = @id;

-- name: DeleteAuthor :exec
DELETE FROM authors WHERE id = ?;
