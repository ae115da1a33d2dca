module gt/interop/kcp

go 1.24.0

require (
	github.com/klauspost/reedsolomon v1.12.0
	github.com/xtaci/kcp-go/v5 v5.6.1
	golang.org/x/crypto v0.45.0
)

require (
	github.com/klauspost/cpuid/v2 v2.1.1 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/templexxx/cpu v0.0.7 // indirect
	github.com/templexxx/xorsimd v0.4.1 // indirect
	github.com/tjfoc/gmsm v1.3.2 // indirect
	golang.org/x/net v0.47.0 // indirect
	golang.org/x/sys v0.38.0 // indirect
)
