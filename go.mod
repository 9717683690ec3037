module github.com/pgadvisory/pgadvisory

go 1.26

require pgregory.net/rapid v1.1.0
