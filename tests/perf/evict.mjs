// Replays public traces through the store and prints how much each order of eviction restores.
//   npm run bench:evict -- DIRECTORY
// DIRECTORY holds mooncake_conversation_trace.jsonl and mooncake_synthetic_trace.jsonl (FAST25-release/traces
// of github.com/kvcache-ai/Mooncake, Apache-2.0). Ends with status 1 where an aim is missed.
import { join } from 'node:path';
import { blockCacheHitRate } from '../../dist/kvstore/simulator/block-cache.js';
import { compareOrders } from '../../dist/kvstore/simulator/table.js';
import { readTrace } from '../../dist/kvstore/simulator/trace.js';

const directory = process.argv[2];
if (directory === undefined) {
  console.error('usage: npm run bench:evict -- DIRECTORY (with the Mooncake traces)');
  process.exit(2);
}
const load = (name) => readTrace(join(directory, `mooncake_${name}_trace.jsonl`));
const traces = ['conversation', 'synthetic'].map((name) => ({ name, requests: load(name) }));
const failures = [];
const aim = (holds, sentence) => {
  if (!holds) failures.push(sentence);
};

const golden = blockCacheHitRate(traces[1].requests, 1e7);
console.log(
  `block cache with LRU, synthetic, 10M tokens: ${golden.toFixed(4)} (published curve .5768)`,
);
aim(Math.abs(golden - 0.5768) <= 0.0005, 'the block cache gives .5768');

const percent = (share) => share.toFixed(4).padStart(8);
console.log('\nshare of input tokens restored');
console.log('trace         store  unit      own      LRU      ds4  ds4 whole files');
for (const cell of compareOrders(traces)) {
  const store = `${cell.capacityTokens / 1e6}M`.padStart(4);
  const fixed = cell.fixedBytes === 0 ? '   0 MiB' : '22.9 MiB';
  const rates = [cell.own, cell.lru, cell.ds4, cell.ds4WholeFiles].map(percent).join(' ');
  console.log(`${cell.trace.padEnd(13)} ${store}  ${fixed} ${rates}`);
  aim(cell.own >= cell.lru, `${cell.trace} ${store} ${fixed}: own >= LRU`);
  if (cell.trace === 'conversation' && cell.capacityTokens === 5e6) {
    aim(cell.own >= 1.5 * cell.ds4, `${cell.trace} ${store} ${fixed}: own >= 1.5 x ds4`);
  }
}
for (const sentence of failures) console.log(`MISSED: ${sentence}`);
process.exitCode = failures.length === 0 ? 0 : 1;
