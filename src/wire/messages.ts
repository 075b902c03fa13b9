// Messages of proto/coxswain/v1/control.proto as bytes and back. The .proto file is read once, at load;
// the types under generated/ are made from the same file (`npm run gen:proto`).
// Decoding gives every field (proto3 defaults filled in) and plain numbers for 64-bit integers.
import { fileURLToPath } from 'node:url';
import protobuf from 'protobufjs';
import { CoxswainError } from '../base/errors.ts';
import type {
  Challenge as ChallengeInput,
  Challenge__Output as ChallengeMessage,
} from './generated/coxswain/v1/Challenge.ts';
import type {
  CoordinatorBody as CoordinatorBodyInput,
  CoordinatorBody__Output as CoordinatorBodyMessage,
} from './generated/coxswain/v1/CoordinatorBody.ts';
import type {
  DataFrame as DataFrameInput,
  DataFrame__Output as DataFrameMessage,
} from './generated/coxswain/v1/DataFrame.ts';
import type {
  FromRank as FrameInput,
  FromRank__Output as FrameMessage,
} from './generated/coxswain/v1/FromRank.ts';
import type {
  Proof as ProofInput,
  Proof__Output as ProofMessage,
} from './generated/coxswain/v1/Proof.ts';
import type {
  RankBody as RankBodyInput,
  RankBody__Output as RankBodyMessage,
} from './generated/coxswain/v1/RankBody.ts';

/** A control message after proof; longer records and results travel in parts. */
export const MESSAGE_BYTES_MAX = 1024 * 1024;

// Both builds of this file (src/wire, dist/wire) lie two folders below the repository root.
const PROTO_FILE = fileURLToPath(new URL('../../proto/coxswain/v1/control.proto', import.meta.url));
const root = new protobuf.Root().loadSync(PROTO_FILE);

export interface MessageCodec<Input extends object, Output> {
  encode(message: Input): Buffer;
  /** @throws CoxswainError REQUEST_INVALID on bytes that are no such message. */
  decode(bytes: Uint8Array): Output;
}

function codecOf<Input extends object, Output>(name: string): MessageCodec<Input, Output> {
  const type = root.lookupType(`coxswain.v1.${name}`);
  return {
    encode: (message) => {
      // Under Node the writer gives a Buffer of its own; copying it again would only cost time.
      const bytes = type.encode(message).finish();
      return Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes);
    },
    decode: (bytes) => {
      try {
        const message = type.decode(bytes);
        return type.toObject(message, { longs: Number, defaults: true, oneofs: true }) as Output;
      } catch (cause) {
        throw new CoxswainError('REQUEST_INVALID', `These bytes are no ${name} message.`, {
          cause,
        });
      }
    },
  };
}

export const rankBodyCodec = codecOf<RankBodyInput, RankBodyMessage>('RankBody');
export const coordinatorBodyCodec = codecOf<CoordinatorBodyInput, CoordinatorBodyMessage>(
  'CoordinatorBody',
);
/** FromRank and ToRank have the same fields and numbers: one codec serves both directions. */
export const frameCodec = codecOf<FrameInput, FrameMessage>('FromRank');
export const challengeCodec = codecOf<ChallengeInput, ChallengeMessage>('Challenge');
export const proofCodec = codecOf<ProofInput, ProofMessage>('Proof');
export const dataFrameCodec = codecOf<DataFrameInput, DataFrameMessage>('DataFrame');

export const ATTACH_PATH = '/coxswain.v1.Control/Attach';
export const FRAMES_PATH = '/coxswain.v1.Control/Frames';
