package lockfn

// freshActivity is a condition that is always true. It belongs to the WHERE of a statement that reads
// pg_stat_activity, and comes before the first read: the condition needs no row, so the plan tests it
// once, before all scans.
//
// Without it, a transaction that read pg_stat_activity before would read the same sessions again. A
// void is not null.
const freshActivity = "(SELECT pg_catalog.pg_stat_clear_snapshot()) IS NOT NULL"
