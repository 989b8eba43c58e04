package reservations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/coopsqlite/coopsqlite/leases/internal/sqltx"
)

// SetStock creates a SKU with 0 to MaxQuantity units on hand. It never changes
// one that is there: that is ErrStockExists, and Restock's business.
func (r *Repository) SetStock(ctx context.Context, sku string, quantity int64) error {
	if err := checkStock(sku, quantity, 0); err != nil {
		return err
	}
	err := r.store.WriteGrouped(ctx, func(ctx context.Context, tx sqltx.Querier) error {
		created, err := changed(tx.ExecContext(ctx, r.texts.Of(`INSERT INTO {stock} (sku, available) VALUES (?, ?) ON CONFLICT (sku) DO NOTHING`),
			sku, quantity))
		if err == nil && !created {
			return ErrStockExists
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("reservations: set stock of %q: %w", sku, err)
	}
	return nil
}

// Restock adds 1 to MaxQuantity units to a SKU. Unlike a reservation it has no
// key: called twice, it adds twice.
func (r *Repository) Restock(ctx context.Context, sku string, quantity int64) error {
	if err := checkStock(sku, quantity, 1); err != nil {
		return err
	}
	err := r.store.WriteGrouped(ctx, func(ctx context.Context, tx sqltx.Querier) error {
		added, err := changed(tx.ExecContext(ctx, r.texts.Of(`UPDATE {stock} SET available = available + ? WHERE sku = ? AND available <= ?`),
			quantity, sku, maxAvailable-quantity))
		if err != nil || added {
			return err
		}
		var available int64
		err = tx.QueryRowContext(ctx, r.texts.Of(`SELECT available FROM {stock} WHERE sku = ?`), sku).Scan(&available)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrUnknownSKU
		}
		if err == nil {
			err = fmt.Errorf("%w: %d on hand are too many for more", ErrInvalidRequest, available)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("reservations: restock %q: %w", sku, err)
	}
	return nil
}

// Available is how many units of the SKU a reservation could take now. Holds
// that are over count as given back, whether somebody has done so already or
// not.
func (r *Repository) Available(ctx context.Context, sku string) (int64, error) {
	var available int64
	err := r.store.Read(ctx, func(ctx context.Context, q sqltx.Querier) error {
		now, err := r.store.Peek(ctx)
		if err != nil {
			return err
		}
		return q.QueryRowContext(ctx, r.texts.Of(`SELECT available + CAST((SELECT coalesce(sum(quantity), 0) FROM {lines}
			WHERE sku = ? AND held_until IS NOT NULL AND held_until <= ?) AS bigint) FROM {stock} WHERE sku = ?`), sku, now, sku).Scan(&available)
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrUnknownSKU
	}
	if err != nil {
		return 0, fmt.Errorf("reservations: available %q: %w", sku, err)
	}
	return available, nil
}

func checkStock(sku string, quantity, least int64) error {
	if err := checkName("SKU", sku, 1); err != nil {
		return err
	}
	return checkQuantity(sku, quantity, least)
}

// changed reports whether a statement changed a row.
func changed(result sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}
