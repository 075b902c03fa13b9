// The SVG of the README: tokens a second of ours and llama.cpp, and what two ranks keep of one rank's rate.
// Drawn by vega-lite (a dependency of tests/perf only); without it there is no chart.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { perf } from './run.mjs';

const OURS = '#2b6cb0';
const PEER = '#b0b0b0';
const WIDTH = 300;

const canDraw = () => existsSync(join(perf, 'node_modules', 'vega-lite'));

function pairs(table) {
  return (table?.rows ?? [])
    .filter((row) => row.cells?.['llama.cpp tok/s']?.value)
    .flatMap((row) => [
      { what: row.what, who: 'coxswain', tokens: row.cells['ours tok/s'].value },
      { what: row.what, who: 'llama.cpp', tokens: row.cells['llama.cpp tok/s'].value },
    ]);
}

const label = {
  field: 'what',
  type: 'nominal',
  sort: null,
  title: null,
  axis: { labelLimit: 320 },
};

function ratePanel(title, values) {
  return {
    title,
    width: WIDTH,
    height: { step: 11 },
    data: { values },
    mark: 'bar',
    encoding: {
      y: label,
      yOffset: { field: 'who', sort: null },
      x: { field: 'tokens', type: 'quantitative', title: 'tokens per second' },
      color: {
        field: 'who',
        title: null,
        scale: { domain: ['coxswain', 'llama.cpp'], range: [OURS, PEER] },
      },
    },
  };
}

function ratioPanel(title, values) {
  return {
    title,
    width: WIDTH,
    height: { step: 16 },
    data: { values },
    layer: [
      {
        mark: { type: 'bar', color: OURS },
        encoding: {
          y: label,
          x: { field: 'ratio', type: 'quantitative', title: 'of one rank with 2 threads' },
        },
      },
      { mark: { type: 'rule', color: '#666', strokeDash: [4, 3] }, encoding: { x: { datum: 1 } } },
    ],
  };
}

function topologies(table) {
  return (table?.rows ?? [])
    .filter((row) => row.cells?.['one rank tok/s'])
    .map((row) => ({ what: row.what, ratio: row.cells.ratio.value }));
}

/** SVG text, or null where nothing can be drawn. */
export async function chart(tables, caption) {
  if (!canDraw()) return null;
  const panels = [
    ['decode', tables.decode],
    ['prefill', tables.prefill],
  ]
    .map(([name, table]) => [name, pairs(table)])
    .filter(([, values]) => values.length > 0)
    .map(([name, values]) => ratePanel(name, values));
  const ratios = topologies(tables.topologies);
  const rows = [
    ...(panels.length > 0 ? [{ hconcat: panels }] : []),
    ...(ratios.length > 0 ? [ratioPanel('two ranks on the same cores', ratios)] : []),
  ];
  if (rows.length === 0) return null;
  const { parse, View } = await import('vega');
  const { compile } = await import('vega-lite');
  const spec = {
    $schema: 'https://vega.github.io/schema/vega-lite/v5.json',
    background: 'white',
    title: { text: caption, fontSize: 11, fontWeight: 'normal', anchor: 'start' },
    vconcat: rows,
  };
  return new View(parse(compile(spec).spec), { renderer: 'none' }).toSVG();
}
