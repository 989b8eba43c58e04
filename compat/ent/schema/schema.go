// Package schema is what the generated code in package gen is made of.
package schema

import (
	"time"

	"entgo.io/ent"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
)

// User has cars and friends.
type User struct{ ent.Schema }

// Fields of a User.
func (User) Fields() []ent.Field {
	return []ent.Field{
		field.String("name").Unique(),
		field.Int("age").Positive(),
		field.JSON("tags", []string{}).Optional(),
		field.Time("created_at").Default(time.Now),
	}
}

// Edges of a User.
func (User) Edges() []ent.Edge {
	return []ent.Edge{
		edge.To("cars", Car.Type),
		edge.To("friends", User.Type),
	}
}

// Car belongs to a User.
type Car struct{ ent.Schema }

// Fields of a Car.
func (Car) Fields() []ent.Field {
	return []ent.Field{field.String("model")}
}

// Edges of a Car.
func (Car) Edges() []ent.Edge {
	return []ent.Edge{edge.From("owner", User.Type).Ref("cars").Unique()}
}
