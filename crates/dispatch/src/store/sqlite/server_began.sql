-- There is no server, and nothing that was committed is ever lacking.
SELECT NULL AS began
