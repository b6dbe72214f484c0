//! Tests of the session layer, through the example front end as a program of its own.

mod front_end;
