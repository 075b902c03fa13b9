// The real engine: class NativeEngine of the addon behind RankEngine. Owns nothing but the native object;
// every method mirrors native/addon/engine.cc by name. Failures are CoxswainErrors with the native code.
import { nativeExport } from '../base/addon.ts';
import { type CoxswainError, toCoxswainError } from '../base/errors.ts';
import type {
  EngineCounters,
  EngineEvent,
  EngineFacts,
  EngineOptions,
  EpochSpec,
  GrpcFrames,
  LinkReport,
  LoadPages,
  Progress,
  RankEngine,
  SavedPages,
  SavePages,
} from './engine.ts';

interface NativeObject {
  load(options: EngineOptions): Promise<EngineFacts>;
  openEpoch(spec: EpochSpec): Promise<readonly LinkReport[]>;
  submit(record: Uint8Array): void;
  savePages(request: SavePages): Promise<SavedPages>;
  loadPages(request: LoadPages): Promise<void>;
  fence(): Promise<void>;
  progress(): Progress;
  counters(): EngineCounters;
  grpcBegin(): void;
  grpcDeliver(peer: number, frame: Uint8Array): void;
  grpcClosed(peer: number, reason: string): void;
  close(): Promise<void>;
}

interface Refusal {
  readonly kind: 'refused';
  readonly message: string;
}

type NativeConstructor = new (
  onEvent: (event: EngineEvent | Refusal) => void,
  onFrame: (peer: number, frame: Uint8Array) => void,
) => NativeObject;

export class NativeEngine implements RankEngine {
  readonly grpc: GrpcFrames;
  private readonly native: NativeObject;
  private eventListener: (event: EngineEvent) => void = () => {};
  private refusalListener: (sentence: string) => void = () => {};
  private frameListener: (peer: number, frame: Uint8Array) => void = () => {};

  /** @throws CoxswainError ADDON_MISSING */
  constructor() {
    const Native = nativeExport<NativeConstructor>('NativeEngine');
    this.native = new Native(
      (event) => {
        if (event.kind === 'refused') this.refusalListener(event.message);
        else this.eventListener(event);
      },
      (peer, frame) => this.frameListener(peer, frame),
    );
    this.grpc = {
      // A new listener means new connections: the engine makes fresh ports for the next epoch.
      onOutgoing: (listener) => {
        this.frameListener = listener;
        translated(() => this.native.grpcBegin());
      },
      deliver: (peer, frame) => translated(() => this.native.grpcDeliver(peer, frame)),
      closed: (peer, reason) => translated(() => this.native.grpcClosed(peer, reason)),
    };
  }

  load(options: EngineOptions): Promise<EngineFacts> {
    return settled(() => this.native.load(options));
  }

  openEpoch(spec: EpochSpec): Promise<readonly LinkReport[]> {
    return settled(() => this.native.openEpoch(spec));
  }

  submit(record: Uint8Array): void {
    translated(() => this.native.submit(record));
  }

  onEvent(listener: (event: EngineEvent) => void): void {
    this.eventListener = listener;
  }

  onRefused(listener: (sentence: string) => void): void {
    this.refusalListener = listener;
  }

  savePages(request: SavePages): Promise<SavedPages> {
    return settled(() => this.native.savePages(request));
  }

  loadPages(request: LoadPages): Promise<void> {
    return settled(() => this.native.loadPages(request));
  }

  fence(): Promise<void> {
    return settled(() => this.native.fence());
  }

  progress(): Progress {
    return translated(() => this.native.progress());
  }

  counters(): EngineCounters {
    return translated(() => this.native.counters());
  }

  close(): Promise<void> {
    return settled(() => this.native.close());
  }
}

function translated<T>(call: () => T): T {
  try {
    return call();
  } catch (thrown) {
    throw asCoxswainError(thrown);
  }
}

async function settled<T>(call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (thrown) {
    throw asCoxswainError(thrown);
  }
}

// A TypeError tells of wrong arguments: a bug of ours, not a failure of the engine.
function asCoxswainError(thrown: unknown): CoxswainError | TypeError {
  return thrown instanceof TypeError ? thrown : toCoxswainError(thrown);
}
