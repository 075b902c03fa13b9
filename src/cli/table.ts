// Text tables for people: columns aligned, numbers to the right.

export function table(rows: readonly (readonly (string | number)[])[]): string {
  const text = rows.map((row) => row.map(String));
  const columns = Math.max(0, ...text.map((row) => row.length));
  const widths = Array.from({ length: columns }, (_, column) =>
    Math.max(...text.map((row) => row[column]?.length ?? 0)),
  );
  return text
    .map((row) =>
      row
        .map((cell, column) =>
          /^[\d.,]+( \w+)?$/.test(cell)
            ? cell.padStart(widths[column] ?? 0)
            : cell.padEnd(widths[column] ?? 0),
        )
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

const UNITS = ['B', 'KB', 'MB', 'GB', 'TB'];

/** 98362432 -> "98.4 MB". */
export function bytes(count: number): string {
  let value = count;
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${UNITS[unit]}`;
}
