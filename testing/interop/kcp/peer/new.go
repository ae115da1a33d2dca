//go:build !kcp561

package main

import "github.com/xtaci/kcp-go/v5"

func extra(name string, key []byte) (kcp.BlockCrypt, error) {
	if name == "aes-128-gcm" {
		return kcp.NewAESGCMCrypt(key[:16])
	}
	panic("unknown cipher " + name)
}
