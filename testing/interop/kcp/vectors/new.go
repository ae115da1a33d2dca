//go:build !kcp561

package main

import "github.com/xtaci/kcp-go/v5"

// extras are the ciphers that only newer versions have.
func extras() []named {
	return []named{{"aes-128-gcm", must(kcp.NewAESGCMCrypt(key()[:16]))}}
}
