// SPDX-License-Identifier: BSD-3-Clause

// Methods, closures and generic functions.
package main

import "fmt"

type price int

type basket struct{ items []price }

//go:noinline
func (b *basket) sum() (all price) {
	for _, item := range b.items {
		all += item
	}
	return
}

//go:noinline
func largest[T int | price](items []T) (most T) {
	for _, item := range items {
		if item > most {
			most = item
		}
	}
	return
}

func main() {
	b := basket{[]price{1, 2, 3}}
	show := func(p price) { fmt.Println(p) }
	show(b.sum())
	show(largest(b.items))
}
