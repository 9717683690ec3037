package main

// steps would do harm, or fail, if they were made twice. The second takes a while, so that the
// other processes wait.
var steps = []Step{
	{1, "create accounts", `
		CREATE TABLE accounts (id int PRIMARY KEY, email text NOT NULL, balance bigint NOT NULL);
		INSERT INTO accounts SELECT i, 'user' || i % 500 || '@bank.example', i FROM generate_series(1, 1000) i`},
	{2, "balances in cents", `
		UPDATE accounts SET balance = balance * 100;
		SELECT pg_sleep(0.2)`},
	{3, "create entries", `
		CREATE TABLE entries (account int NOT NULL REFERENCES accounts, amount bigint NOT NULL)`},
}

// broken adds a column and then fails, because two accounts have the same address.
var broken = Step{4, "unique logins", `
		ALTER TABLE accounts ADD COLUMN login text;
		UPDATE accounts SET login = email;
		CREATE UNIQUE INDEX accounts_login ON accounts (login)`}

var repaired = Step{4, "unique logins", `
		ALTER TABLE accounts ADD COLUMN login text;
		UPDATE accounts SET login = id || '.' || email;
		CREATE UNIQUE INDEX accounts_login ON accounts (login)`}
