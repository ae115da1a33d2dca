//go:build kcp561

package main

func extras() []named { return nil }
