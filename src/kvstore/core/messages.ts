// What the coordinator's store and the holders of directories say to each other. Every message names
// store and epoch: a holder obeys no other store and no older epoch, the coordinator counts no answer of
// another epoch. The shells carry these over the control stream; payload bytes never travel here.
import type { Box, SegmentKind } from './model.ts';

/** One file to be written by one holder. */
export interface SegmentOrder {
  /** 32 hex digits: epoch (16), nonce (16). */
  readonly id: string;
  readonly kind: SegmentKind;
  readonly tokenBegin: number;
  readonly tokenEnd: number;
  readonly boxes: readonly Box[];
  readonly fileBytes: number;
}

interface FromStore {
  readonly store: string;
  readonly epoch: number;
}

export type ToHolder = FromStore &
  (
    | { readonly type: 'reserve'; readonly save: string; readonly bytes: number }
    | { readonly type: 'prepare'; readonly save: string; readonly orders: readonly SegmentOrder[] }
    | {
        readonly type: 'commit';
        readonly save: string;
        readonly name: string;
        readonly manifest: Uint8Array;
      }
    /** Nothing names what was written for this save, and nothing will. */
    | { readonly type: 'abort'; readonly save: string }
    /** Their manifests are gone and synced. */
    | {
        readonly type: 'delete';
        readonly names: readonly string[];
        readonly segments: readonly string[];
      }
    | { readonly type: 'trash'; readonly segments: readonly string[] }
  );

export interface WrittenSegment {
  readonly id: string;
  readonly digest: string;
  readonly fileBytes: number;
}

export type FromHolder = { readonly directory: string; readonly epoch: number } & (
  | { readonly type: 'reserved'; readonly save: string; readonly refusal: string | null }
  | {
      readonly type: 'prepared';
      readonly save: string;
      readonly written: readonly WrittenSegment[];
      readonly failure: string | null;
    }
);

/** What a directory holds, sent when its holder joins. */
export interface Inventory {
  readonly store: string;
  readonly directory: string;
  readonly segments: readonly { readonly id: string; readonly fileBytes: number }[];
}

/** The epoch under which a segment was written. */
export function epochOfSegment(id: string): number {
  return Number.parseInt(id.slice(0, 16), 16);
}

/** `nonce`: 64 random bits as 16 hex digits. */
export function segmentId(epoch: number, nonce: string): string {
  return epoch.toString(16).padStart(16, '0') + nonce;
}
