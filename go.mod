module github.com/pgadvisory/pgadvisory

go 1.26
