package main

import (
	"slices"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
)

const (
	hubServer = "hub"
	// actEvery is the time between two acts of a reader in one namespace, and work the part of it that lies between its
	// question whether it may and the act.
	actEvery = 50 * time.Millisecond
	work     = 10 * time.Millisecond
)

// hubReplicas are the places of the hub's processes: when one ends, another takes its place.
var hubReplicas = []string{"hub-1", "hub-2"}

// cast are the members. Each namespace exists in two or in all three, so that the loss of a cluster moves some and
// leaves others alone, and there is no cluster that leads nothing.
var cast = []harness.Member{
	{Name: "east", Priority: 100, Namespaces: []string{"shop", "bank", "mint", "post", "stock"}},
	{Name: "west", Priority: 50, Namespaces: []string{"shop", "bank", "mail", "mint", "news"}},
	{Name: "south", Priority: 10, Namespaces: []string{"shop", "bank", "mail", "news", "post", "stock"}},
}

func memberNames() []string {
	var names []string
	for _, m := range cast {
		names = append(names, m.Name)
	}
	return names
}

func namespacesOf(member string) []string {
	i := slices.IndexFunc(cast, func(m harness.Member) bool { return m.Name == member })
	return cast[i].Namespaces
}

// allNamespaces are those of all members, sorted.
func allNamespaces() []string {
	var all []string
	for _, m := range cast {
		all = append(all, m.Namespaces...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// homes are the members in which a namespace exists.
func homes(namespace string) []string {
	var in []string
	for _, m := range cast {
		if slices.Contains(m.Namespaces, namespace) {
			in = append(in, m.Name)
		}
	}
	return in
}
