CREATE TABLE customer (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    city TEXT
);

CREATE TABLE purchase (
    id INTEGER PRIMARY KEY,
    customer_id INTEGER NOT NULL REFERENCES customer (id),
    cents INTEGER NOT NULL CHECK (cents > 0),
    placed_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
);

INSERT INTO customer (id, name, city) VALUES (1, 'Ada', 'London'), (2, 'Grace', 'New York');

SELECT customer.city, COUNT(*) AS purchases, SUM(purchase.cents) / 100.0 AS total
FROM purchase
JOIN customer ON customer.id = purchase.customer_id
WHERE purchase.placed_at >= '2024-01-01'
GROUP BY customer.city
ORDER BY total DESC;
