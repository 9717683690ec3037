module github.com/pgadvisory/pgadvisory

go 1.26

require pgregory.net/rapid v1.1.0

require github.com/lib/pq v1.10.9 // indirect
