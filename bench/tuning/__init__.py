# bench/tuning: programs that fit the figures of src/tuning to what a machine measures.
