// Sessions over connections that break, messages in parts, heartbeat datagrams, grpc frame links.
import { afterEach, describe, expect, it } from 'vitest';
import { toCoxswainError } from '../../../src/base/errors.ts';
import { dialFrames, type FramesLink, listenFrames } from '../../../src/wire/frames-link.ts';
import { dialGrpc } from '../../../src/wire/grpc-dialler.ts';
import type { GrpcListener } from '../../../src/wire/grpc-listener.ts';
import { decodeHeartbeat, encodeHeartbeat } from '../../../src/wire/heartbeat-codec.ts';
import { deriveClusterKeys, type LinkName } from '../../../src/wire/keys.ts';
import { challengeCodec, dataFrameCodec, FRAMES_PATH } from '../../../src/wire/messages.ts';
import {
  JOINED_BYTES_MAX,
  PART_BYTES_MAX,
  PartJoiner,
  sendInParts,
} from '../../../src/wire/parts.ts';
import { NonceMemory } from '../../../src/wire/proof.ts';
import { type BodyChannel, ReliableSession } from '../../../src/wire/reliable-session.ts';

interface Body {
  readonly text: string;
  readonly number?: number;
  readonly acked?: number;
}

/** One direction of a conversation over channels that a test joins and breaks. */
class Half {
  readonly session = new ReliableSession<Body>((body) => Buffer.from(JSON.stringify(body)));
  readonly heard: string[] = [];
  peer: Half | null = null;

  connect(peer: Half): void {
    this.peer = peer;
    this.session.attach(this.channel(peer), peer.session.received);
  }

  /** What is sent from now on is lost, as in a broken connection. */
  lose(): void {
    this.session.attach({ send: () => undefined }, 0);
  }

  private channel(peer: Half): BodyChannel {
    return { send: (bytes) => peer.take(JSON.parse(Buffer.from(bytes).toString())) };
  }

  private take(body: Required<Body>): void {
    if (this.session.take(body.number, body.acked)) this.heard.push(body.text);
  }
}

describe('a reliable session', () => {
  it('delivers everything once and in order over any number of breaks', () => {
    const a = new Half();
    const b = new Half();
    const said: string[] = [];
    for (let round = 0; round < 20; round += 1) {
      a.connect(b);
      b.connect(a);
      for (let index = 0; index < round % 7; index += 1) {
        said.push(`${round}.${index}`);
        a.session.send({ text: said.at(-1) ?? '' });
      }
      a.lose();
      b.session.detach();
      said.push(`${round} lost`);
      a.session.send({ text: said.at(-1) ?? '' });
    }
    a.connect(b);
    expect(b.heard).toEqual(said);
  });

  it('refuses a gap, and drops what it has seen', () => {
    const { session } = new Half();
    expect(session.take(1, 0)).toBe(true);
    expect(session.take(1, 0)).toBe(false);
    expect(() => session.take(3, 0)).toThrow(/Message 3 arrived where 2 was due/);
  });

  it('forgets what is acknowledged, also when the other side has nothing to say', () => {
    const a = new Half();
    const b = new Half();
    a.connect(b);
    b.connect(a);
    for (let index = 0; index < 10_000; index += 1) a.session.send({ text: 'x' });
    expect(b.heard.length).toBe(10_000);
  });

  it('ends when the other side acknowledges nothing for too long', () => {
    const a = new Half();
    a.session.detach();
    expect(() => {
      for (let index = 0; index < 5000; index += 1) a.session.send({ text: 'x' });
    }).toThrow(/has not acknowledged 4097 messages/);
  });
});

describe('messages in parts', () => {
  it.each([0, 1, PART_BYTES_MAX, PART_BYTES_MAX + 1, 3 * PART_BYTES_MAX])(
    'come back whole (%i bytes)',
    (length) => {
      const bytes = Buffer.alloc(length, 7);
      bytes.fill(9, length >> 1);
      const joiner = new PartJoiner();
      const wholes: Uint8Array[] = [];
      for (const _ of [1, 2]) {
        sendInParts(bytes, (part, more) => {
          expect(part.length).toBeLessThanOrEqual(PART_BYTES_MAX);
          const whole = joiner.add(part, more);
          if (whole !== null) wholes.push(whole);
        });
      }
      expect(wholes.map((whole) => Buffer.compare(whole, bytes))).toEqual([0, 0]);
    },
  );

  it('are refused when they add up to too much', () => {
    const joiner = new PartJoiner();
    const part = new Uint8Array(PART_BYTES_MAX);
    expect(() => {
      for (let sum = 0; sum <= JOINED_BYTES_MAX; sum += part.length) joiner.add(part, true);
    }).toThrow(/exceeds/);
  });
});

describe('heartbeat datagrams', () => {
  const key = new Uint8Array(32).fill(5);
  const beat = {
    kind: 'beat' as const,
    rank: 3,
    counter: 77,
    epoch: 2 ** 40,
    step: 2 ** 45,
    item: 12,
    busy: true,
  };

  it('come back equal under their key', () => {
    expect(decodeHeartbeat(encodeHeartbeat(beat, key), key)).toEqual(beat);
  });

  it('prove nothing when any bit or byte is changed, cut or added', () => {
    const bytes = encodeHeartbeat(beat, key);
    for (let bit = 0; bit < bytes.length * 8; bit += 1) {
      const changed = Buffer.from(bytes);
      changed.writeUInt8(changed.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3);
      expect(decodeHeartbeat(changed, key)).toBeNull();
    }
    expect(decodeHeartbeat(bytes.subarray(1), key)).toBeNull();
    expect(decodeHeartbeat(Buffer.concat([bytes, Buffer.alloc(1)]), key)).toBeNull();
    expect(decodeHeartbeat(bytes, new Uint8Array(32))).toBeNull();
  });
});

describe('grpc frame links', () => {
  const { data } = deriveClusterKeys('the token of the frame link tests');
  const name: LinkName = { epoch: 4, incarnation: 'a'.repeat(32), lowerRank: 0, higherRank: 1 };
  const warnings: string[] = [];
  let listener: GrpcListener | null = null;

  afterEach(async () => {
    await listener?.close();
    listener = null;
    warnings.length = 0;
  });

  async function listen(): Promise<{ readonly arrived: Promise<FramesLink> }> {
    let resolve: (link: FramesLink) => void = () => undefined;
    const arrived = new Promise<FramesLink>((done) => {
      resolve = done;
    });
    listener = await listenFrames({
      host: '127.0.0.1',
      dataKey: data,
      nonces: new NonceMemory(),
      log: { warn: (_fields, message) => void warnings.push(message) },
      isExpected: (link) => JSON.stringify(link) === JSON.stringify(name),
      onLink: (_name, link) => resolve(link),
    });
    return { arrived };
  }

  const dial = (link: LinkName, dataKey: Uint8Array = data) =>
    dialFrames({
      address: `127.0.0.1:${listener?.port}`,
      dataKey,
      link,
      nonces: new NonceMemory(),
      deadlineMs: 2000,
    });

  it('carry frames of any size both ways, in order, also those sent before anyone listens', async () => {
    const { arrived } = await listen();
    const dialled = await dial(name);
    const accepted = await arrived;
    const frames = [1, 70_000, 3 * PART_BYTES_MAX + 5, 0, 12].map((length, index) =>
      Buffer.alloc(length, index + 1),
    );
    for (const [from, to] of [
      [dialled, accepted],
      [accepted, dialled],
    ] as const) {
      const got: Uint8Array[] = [];
      for (const frame of frames) from.send(frame);
      await new Promise<void>((resolve) =>
        to.consume(
          (frame) => {
            got.push(frame);
            if (got.length === frames.length) resolve();
          },
          () => undefined,
        ),
      );
      expect(got.map((frame, index) => frames[index]?.equals(frame))).toEqual(
        frames.map(() => true),
      );
    }
  });

  it('say so when the other end goes', async () => {
    const { arrived } = await listen();
    const dialled = await dial(name);
    const accepted = await arrived;
    const closed = new Promise<string>((resolve) => accepted.consume(() => undefined, resolve));
    dialled.close('done');
    expect(await closed).not.toBe('');
  });

  it('refuse another epoch, another key, and garbage', async () => {
    await listen();
    const outcome = async (work: Promise<unknown>) =>
      work.then(
        () => 'linked',
        (thrown: unknown) => toCoxswainError(thrown).code,
      );
    expect(await outcome(dial({ ...name, epoch: 3 }))).not.toBe('linked');
    expect(await outcome(dial(name, new Uint8Array(32)))).not.toBe('linked');
    const stranger = await dialGrpc(`127.0.0.1:${listener?.port}`, FRAMES_PATH, 2000);
    const nonsense = challengeCodec.encode({ nonce: Buffer.alloc(3), identity: 'who' });
    stranger.pipe.send(dataFrameCodec.encode({ frame: nonsense }));
    await expect(stranger.pipe.next(2000)).rejects.toThrow();
    stranger.destroy();
    expect(warnings.length).toBeGreaterThanOrEqual(3);
  });
});
