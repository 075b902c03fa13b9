// One rank's engine as TypeScript sees it. native-engine.ts is the real one (the addon), fake-engine.ts
// the simulated one. Record and result bytes: src/wire/step-codec.ts.

import type { Transport } from '../base/transport.ts';

export type KvType = 'f32' | 'f16';

export interface Topology {
  /** Weight of each TP rank; its length is the TP degree. */
  readonly split: readonly number[];
  readonly pp: number;
  /** Inclusive layer ranges, one a stage, or empty for automatic. */
  readonly layers: readonly (readonly [first: number, last: number])[];
  readonly kvType: KvType;
  readonly exact: boolean;
  /** 0: the model's own. */
  readonly context: number;
}

export interface EngineOptions {
  readonly path: string;
  readonly topology: Topology;
  readonly rank: number;
  readonly threads: number;
  readonly kvBlocks: number;
  readonly slotsMax: number;
  readonly stepRowsMax: number;
  /** More engine threads than cores on this host: waits sleep after 20 us. */
  readonly shareCores: boolean;
  /** Address that the data plane listens on. */
  readonly dataHost: string;
}

export interface EngineFacts {
  readonly fingerprint: string;
  readonly planHash: string;
  readonly numericsId: string;
  readonly isa: string;
  readonly weightBytes: number;
  readonly kvBytes: number;
  readonly residentBytes: number;
  readonly context: number;
  readonly vocab: number;
  readonly loadMs: number;
  readonly dataPort: number;
}

export interface LinkSpec {
  readonly peer: number;
  readonly transport: Transport;
  readonly host: string;
  readonly port: number;
}

export interface EpochSpec {
  readonly epoch: number;
  /** 32 hex digits. */
  readonly incarnation: string;
  readonly rank: number;
  /** 32 bytes. */
  readonly dataKey: Uint8Array;
  readonly links: readonly LinkSpec[];
  readonly firstStep: number;
  readonly openTimeoutMs: number;
}

export interface LinkReport {
  readonly peer: number;
  readonly transport: string;
  readonly interface: string;
  readonly roundTripUs: number;
}

export type EngineEvent =
  | {
      readonly kind: 'result';
      readonly epoch: number;
      readonly step: number;
      readonly bytes: Uint8Array;
    }
  | {
      readonly kind: 'failed';
      readonly epoch: number;
      readonly step: number;
      readonly code: string;
      readonly message: string;
    };

export interface EngineCounters {
  readonly collectives: number;
  readonly bytesSent: number;
  readonly bytesReceived: number;
  readonly waitNs: number;
}

export interface Progress {
  readonly epoch: number;
  readonly step: number;
  readonly item: number;
  readonly busy: boolean;
}

/** Frames of the grpc data transport, which alone passes through JavaScript. */
export interface GrpcFrames {
  /** Called by the engine with frames to send. */
  onOutgoing(listener: (peer: number, frame: Uint8Array) => void): void;
  deliver(peer: number, frame: Uint8Array): void;
  closed(peer: number, reason: string): void;
}

/** Pages of an existing file (native/engine/kv_pages.h): one per KV block, from byte `offset` on. */
export interface SavePages {
  readonly epoch: number;
  readonly path: string;
  readonly offset: number;
  /** Nothing may change them meanwhile: full blocks, or copies in no slot. */
  readonly blocks: Uint32Array;
}

/** A page holds a chunk of keys and values per layer and KV head, in that order. */
export interface SavedPages {
  readonly fileLayers: number;
  readonly fileKvHeads: number;
  /** XXH64 of every chunk of every page, little-endian. */
  readonly checksums: Uint8Array;
}

/** The chunks a rank takes of each page, and which of its own they become. */
export interface PageBox {
  readonly fileLayer: number;
  readonly layer: number;
  readonly layers: number;
  readonly fileHead: number;
  readonly head: number;
  readonly heads: number;
}

export interface LoadPages extends SavePages, SavedPages {
  readonly box: PageBox;
}

export interface RankEngine {
  /** Loads the shard; resolves when weights are packed and KV blocks reserved. */
  load(options: EngineOptions): Promise<EngineFacts>;
  /** Opens this epoch's links (all peers must do so too) and drops all slots. */
  openEpoch(spec: EpochSpec): Promise<readonly LinkReport[]>;
  /** Queues one step record. Never blocks; failures arrive as events. */
  submit(record: Uint8Array): void;
  /** Beside running steps; a fence ends it. The caller syncs the file. */
  savePages(request: SavePages): Promise<SavedPages>;
  /** Into blocks that are in no slot. On failure (KV_DAMAGED) they hold nothing of use. */
  loadPages(request: LoadPages): Promise<void>;
  onEvent(listener: (event: EngineEvent) => void): void;
  /** A stranger on the data port was shown out; at most one sentence a second. */
  onRefused(listener: (sentence: string) => void): void;
  /** Leaves every wait within 50 ms and drops queued steps; resolves when the executor is idle. */
  fence(): Promise<void>;
  progress(): Progress;
  counters(): EngineCounters;
  readonly grpc: GrpcFrames;
  close(): Promise<void>;
}
