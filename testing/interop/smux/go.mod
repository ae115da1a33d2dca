module gt/interop/smux

go 1.24.0

require github.com/xtaci/smux v1.5.16
