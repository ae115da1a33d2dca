module gt/interop/h2

go 1.24.0
