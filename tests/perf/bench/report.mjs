// Tables as text, and all stored results as one JSON file: what was measured, when, on what class of machine.
import { mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { arch, availableParallelism, cpus, release, type as system } from 'node:os';
import { basename, dirname, join } from 'node:path';

export function machine() {
  const model = cpus()[0]?.model ?? 'unknown processor';
  return {
    processor: model,
    cores: availableParallelism(),
    architecture: arch(),
    system: `${system()} ${release()}`,
    node: process.versions.node,
  };
}

/** Columns that hold a share of a limit. */
const isShare = (column) => column.startsWith('of ');

function number(value, column) {
  if (isShare(column)) return `${(100 * value).toFixed(0)} %`;
  if (column === 'ratio') return value.toFixed(2);
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(Math.abs(value) >= 10 ? 1 : 2);
}

/** "2.49 (at least 2.10)", with MISSED where it is. */
function cellText(cell, column) {
  if (cell === undefined) return '';
  const value = cell.value === null ? '-' : number(cell.value, column);
  const bound = cell.least ?? cell.most;
  if (bound === undefined) return value;
  const sign = cell.least === undefined ? '<=' : '>=';
  return `${value} (${sign} ${number(bound, column)}${cell.met === false ? ', MISSED' : ''})`;
}

/** Consecutive rows whose columns overlap: they share a heading. */
function sections(rows) {
  const found = [];
  for (const row of rows) {
    const columns = Object.keys(row.cells ?? {});
    const last = found.at(-1);
    if (last && (columns.length === 0 || columns.some((column) => last.columns.has(column)))) {
      last.rows.push(row);
      for (const column of columns) last.columns.add(column);
    } else found.push({ rows: [row], columns: new Set(columns) });
  }
  return found;
}

function sectionLines({ rows, columns }) {
  const head = ['', ...columns];
  const lines = [
    head,
    ...rows.map((row) => [
      row.what,
      ...[...columns].map((column) => cellText(row.cells?.[column], column)),
    ]),
  ];
  const widths = head.map((_, i) => Math.max(...lines.map((line) => line[i].length)));
  const padded = lines.map((line) =>
    line.map((cell, i) => (i === 0 ? cell.padEnd(widths[i]) : cell.padStart(widths[i]))).join('  '),
  );
  return padded.map((line, i) => `${line}  ${rows[i - 1]?.note ?? ''}`.trimEnd());
}

export function tableText({ title, date, runs, rows }) {
  const heading = `${title} (${date.slice(0, 10)}, medians of ${runs})`;
  return [heading, ...sections(rows).flatMap(sectionLines)].join('\n');
}

/** Every claim that was measured and not met, as sentences. */
export function missed(tables) {
  return Object.values(tables).flatMap(({ title, rows }) =>
    rows.flatMap((row) =>
      Object.entries(row.cells ?? {})
        .filter(([, cell]) => cell.met === false)
        .map(([column, cell]) => `${title}: ${row.what}, ${column} ${cellText(cell, column)}`),
    ),
  );
}

export function writeWhole(path, text) {
  mkdirSync(dirname(path), { recursive: true });
  const partial = `${path}.${process.pid}.part`;
  writeFileSync(partial, text);
  renameSync(partial, path);
}

const directoryOf = (bench) => join(bench.cache, bench.quick ? 'results-quick' : 'results');

export function storeTable(bench, name, table) {
  writeWhole(join(directoryOf(bench), `${name}.json`), `${JSON.stringify(table)}\n`);
}

/** Stored tables by name, in the given order. */
export function storedTables(bench, order) {
  const directory = directoryOf(bench);
  mkdirSync(directory, { recursive: true });
  const there = readdirSync(directory).map((file) => basename(file, '.json'));
  return Object.fromEntries(
    order
      .filter((name) => there.includes(name))
      .map((name) => [name, JSON.parse(readFileSync(join(directory, `${name}.json`), 'utf8'))]),
  );
}
