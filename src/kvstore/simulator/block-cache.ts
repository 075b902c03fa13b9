// A block cache with LRU, as the literature simulates it: 512-token blocks, one evicted at a time, a hit
// is the leading run of known blocks, all blocks of a request are inserted. It gates the reading of traces
// and the counting of hits against published figures; the store itself works with units.
import { BLOCK_TOKENS, type TraceRequest } from './trace.ts';

/** Share of input tokens that hit. */
export function blockCacheHitRate(
  requests: readonly TraceRequest[],
  capacityTokens: number,
): number {
  const capacity = Math.floor(capacityTokens / BLOCK_TOKENS);
  /** In order of use. */
  const held = new Set<number>();
  let hit = 0;
  let input = 0;
  for (const { allBlocks, inputTokens } of requests) {
    let run = 0;
    while (run < allBlocks.length && held.has(allBlocks[run] ?? -1)) run += 1;
    hit += Math.min(run * BLOCK_TOKENS, inputTokens);
    input += inputTokens;
    for (const block of allBlocks) {
      held.delete(block);
      held.add(block);
      if (held.size > capacity)
        for (const oldest of held) {
          held.delete(oldest);
          break;
        }
    }
  }
  return hit / input;
}
