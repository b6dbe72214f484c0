import { useEffect, useMemo, useState } from "react";
import type { Row, Column } from "./table";

const LIMIT = 250;

/** Groups rows by a key, keeping the order in which the keys first appear. */
export function groupBy<T, K extends string>(rows: readonly T[], key: (row: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  for (let i = 0; i < rows.length; i++) {
    const k = key(rows[i]);
    const known = groups.get(k);
    if (known === undefined) groups.set(k, [rows[i]]);
    else known.push(rows[i]);
  }
  return groups;
}

export function Table({ rows, columns, onPick }: Props) {
  const [query, setQuery] = useState("");
  const [page, setPage] = useState(0);

  const shown = useMemo(() => {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    return rows.filter((row) => words.every((word) => row.text.includes(word))).slice(page * LIMIT, (page + 1) * LIMIT);
  }, [rows, query, page]);

  useEffect(() => {
    if (page > 0 && shown.length === 0) {
      setPage(0); // the filter left nothing here
    }
  }, [page, shown]);

  return (
    <section className="table" aria-label="Größen – results">
      <input value={query} placeholder={'type "name:" or \'id:\''} onChange={(e) => setQuery(e.target.value)} />
      {shown.map((row) => (
        <Line key={row.id} row={row} columns={columns} onPick={() => onPick?.(row)} />
      ))}
    </section>
  );
}

export async function load(url: string, signal: AbortSignal): Promise<Row[]> {
  const response = await fetch(`${url}?limit=${LIMIT}`, { signal, headers: { accept: "application/json" } });
  if (!response.ok) throw new Error(`HTTP ${response.status}: ${(await response.text()).slice(0, 200)}`);
  const body = (await response.json()) as { rows: Array<Record<string, unknown>>; next?: string | null };
  return body.rows.map((row, index) => ({ id: String(row["id"] ?? index), text: JSON.stringify(row), at: Date.now() }));
}

