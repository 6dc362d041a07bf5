"""The dashboards of Grafana: what they show (overview, shards, leases, sinks, process), and their building."""
