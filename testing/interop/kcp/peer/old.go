//go:build kcp561

package main

import "github.com/xtaci/kcp-go/v5"

func extra(name string, _ []byte) (kcp.BlockCrypt, error) {
	panic("unknown cipher " + name)
}
