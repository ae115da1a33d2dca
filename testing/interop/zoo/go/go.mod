module gt.example/zoo

go 1.24
