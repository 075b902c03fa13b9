// The control port over real sockets: a rank that holds the token gets a channel, strangers get nothing,
// and the port goes on serving after each of them.
import { connect as connectHttp2 } from 'node:http2';
import { connect, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { toCoxswainError } from '../../../src/base/errors.ts';
import { dialControl } from '../../../src/wire/control-client.ts';
import { type ControlServer, listenControl } from '../../../src/wire/control-server.ts';
import { dialGrpc } from '../../../src/wire/grpc-dialler.ts';
import { deriveClusterKeys } from '../../../src/wire/keys.ts';
import {
  ATTACH_PATH,
  coordinatorBodyCodec,
  frameCodec,
  MESSAGE_BYTES_MAX,
  rankBodyCodec,
} from '../../../src/wire/messages.ts';
import { MutualProof, NonceMemory } from '../../../src/wire/proof.ts';
import type { SecureChannel } from '../../../src/wire/secure-channel.ts';

const keys = deriveClusterKeys('the token of this test cluster');
const warnings: { message: string; fields: Record<string, unknown> }[] = [];
const channels: SecureChannel[] = [];
let arrived: (() => void) | null = null;
let server: ControlServer;

beforeEach(async () => {
  warnings.length = 0;
  channels.length = 0;
  server = await listenControl({
    host: '127.0.0.1',
    port: 0,
    keys,
    clusterId: 'c1',
    log: { warn: (fields, message) => void warnings.push({ fields: { ...fields }, message }) },
    onChannel: (channel) => {
      channels.push(channel);
      arrived?.();
    },
  });
});
afterEach(() => server.close());

const address = () => `127.0.0.1:${server.port}`;

async function join(): Promise<{
  rank: Awaited<ReturnType<typeof dialControl>>;
  peer: SecureChannel;
}> {
  const came = new Promise<void>((resolve) => {
    arrived = resolve;
  });
  const rank = await dialControl({
    address: address(),
    keys,
    identity: 'rank 0',
    nonces: new NonceMemory(),
    deadlineMs: 3000,
  });
  await came;
  const peer = channels.at(-1);
  if (!peer) throw new Error('no channel arrived');
  return { rank, peer };
}

function next(channel: SecureChannel): Promise<Buffer | string> {
  return new Promise((resolve) => channel.consume(resolve, resolve));
}

async function until(condition: () => boolean): Promise<void> {
  for (let tries = 0; tries < 300; tries += 1) {
    if (condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error('the condition did not come true within 3 s');
}

describe('the control port', () => {
  it('carries messages both ways after both proofs', async () => {
    const { rank, peer } = await join();
    expect(peer.session.peerIdentity).toBe('rank 0');
    const atCoordinator = next(peer);
    const atRank = next(rank.channel);
    rank.channel.send(rankBodyCodec.encode({ goodbye: { reason: 'up' } }));
    peer.send(coordinatorBodyCodec.encode({ shutdown: { reason: 'down' } }));
    expect(rankBodyCodec.decode((await atCoordinator) as Buffer).goodbye?.reason).toBe('up');
    expect(coordinatorBodyCodec.decode((await atRank) as Buffer).shutdown?.reason).toBe('down');
    rank.destroy();
  });

  it('carries a message of the full size, and refuses to send a larger one', async () => {
    const { rank, peer } = await join();
    const got = next(peer);
    rank.channel.send(new Uint8Array(MESSAGE_BYTES_MAX));
    expect((await got).length).toBe(MESSAGE_BYTES_MAX);
    expect(() => rank.channel.send(new Uint8Array(MESSAGE_BYTES_MAX + 1))).toThrow(/exceeds/);
    rank.destroy();
  });

  it('tells a rank with the wrong token what is wrong, and lets the right one in afterwards', async () => {
    const error = await dialControl({
      address: address(),
      keys: deriveClusterKeys('some other cluster token'),
      identity: 'rank 0',
      nonces: new NonceMemory(),
      deadlineMs: 3000,
    }).then(
      () => null,
      (thrown: unknown) => toCoxswainError(thrown),
    );
    expect(error?.code).toBe('AUTH_FAILED');
    expect(error?.message).toMatch(/COX_CLUSTER_TOKEN/);
    expect(warnings.at(-1)?.message).toBe('stranger refused');
    (await join()).rank.destroy();
  });

  it('closes the channel when a frame is repeated, skipped or altered', async () => {
    for (const damage of ['repeat', 'skip', 'alter'] as const) {
      // A rank whose frames pass through the test: proofs are honest, the frames after them are not.
      const came = new Promise<void>((resolve) => {
        arrived = resolve;
      });
      const { stream, frameFor } = await honestProof();
      await came;
      const peer = channels.at(-1);
      if (!peer) throw new Error('no channel arrived');
      const bodies: number[] = [];
      const closed = new Promise<string>((resolve) => {
        peer.consume((body) => void bodies.push(body.length), resolve);
      });
      const first = frameFor(1, 'first');
      stream.pipe.send(first);
      if (damage === 'repeat') stream.pipe.send(first);
      if (damage === 'skip') stream.pipe.send(frameFor(3, 'third'));
      if (damage === 'alter') {
        const frame = frameCodec.decode(frameFor(2, 'second'));
        stream.pipe.send(frameCodec.encode({ ...frame, body: Buffer.from('forged') }));
      }
      expect(await closed).toMatch(/was due|was altered/);
      expect(bodies.length).toBe(1);
      stream.destroy();
    }
  });

  it('shrugs off garbage, HTTP/1, silence and foreign HTTP/2', async () => {
    const strangers: Socket[] = [];
    for (const text of ['\0\xff\x13garbage\r\n\r\n', 'GET / HTTP/1.1\r\nHost: x\r\n\r\n', '']) {
      const socket = connect(server.port, '127.0.0.1');
      socket.on('error', () => socket.destroy());
      socket.write(text);
      strangers.push(socket);
    }
    const session = connectHttp2(`http://${address()}`);
    session.on('error', () => session.destroy());
    const request = session.request({ ':path': '/index.html', ':method': 'GET' });
    const status = await new Promise((resolve) => {
      request.on('response', (headers) => resolve(headers[':status']));
      request.on('error', () => resolve('error'));
    });
    expect(status).not.toBe(200);
    (await join()).rank.destroy();
    session.destroy();
    for (const socket of strangers) socket.destroy();
  });

  it('refuses a stranger that sends more than 4 KiB before any proof', async () => {
    const stream = await dialGrpc(address(), ATTACH_PATH, 3000);
    stream.pipe.send(
      frameCodec.encode({ sequence: 0, mac: new Uint8Array(0), body: Buffer.alloc(5000) }),
    );
    const answer = coordinatorBodyCodec.decode(
      frameCodec.decode(await stream.pipe.next(3000)).body,
    );
    expect(answer.refused?.sentence).toMatch(/before any proof/);
    stream.destroy();
    (await join()).rank.destroy();
  });

  it('refuses a recorded proof played again', async () => {
    const recorded: Buffer[] = [];
    const { stream } = await honestProof(recorded);
    stream.destroy();
    const replay = await dialGrpc(address(), ATTACH_PATH, 3000);
    for (const message of recorded) replay.pipe.send(message);
    const answer = coordinatorBodyCodec.decode(
      frameCodec.decode(await replay.pipe.next(3000)).body,
    );
    expect(answer.refused?.sentence).toMatch(/used before/);
    replay.destroy();
  });

  it('keeps no more than 64 connections without proof', async () => {
    const sockets = Array.from({ length: 80 }, () => {
      const socket = connect(server.port, '127.0.0.1');
      socket.on('error', () => socket.destroy());
      return socket;
    });
    await until(() => sockets.filter((socket) => socket.closed).length >= 16);
    expect(warnings.some(({ message }) => message.includes('too many'))).toBe(true);
    for (const socket of sockets) socket.destroy();
    await until(() => sockets.every((socket) => socket.closed));
    await new Promise((resolve) => setTimeout(resolve, 50));
    (await join()).rank.destroy();
  });

  it('cuts a connection that proves nothing within 5 s', async () => {
    const socket = connect(server.port, '127.0.0.1');
    socket.on('error', () => socket.destroy());
    socket.resume();
    const started = Date.now();
    await new Promise((resolve) => socket.once('close', resolve));
    const waited = Date.now() - started;
    expect(waited).toBeGreaterThan(4500);
    expect(waited).toBeLessThan(7000);
    expect(warnings.some(({ message }) => message.includes('no proof'))).toBe(true);
  });

  it('is told when a rank goes away', async () => {
    const { rank, peer } = await join();
    const closed = new Promise<string>((resolve) => peer.consume(() => undefined, resolve));
    rank.destroy();
    expect(await closed).not.toBe('');
  });
});

/** Proves the token by hand, so that the test can make frames of its own afterwards. */
async function honestProof(record: Buffer[] = []) {
  const stream = await dialGrpc(address(), ATTACH_PATH, 3000);
  const send = (body: Buffer) => {
    const message = frameCodec.encode({ sequence: 0, mac: new Uint8Array(0), body });
    record.push(message);
    stream.pipe.send(message);
  };
  const receive = async () =>
    coordinatorBodyCodec.decode(frameCodec.decode(await stream.pipe.next(3000)).body);
  const proof = new MutualProof({
    key: keys.control,
    role: 'dialler',
    purpose: 'control',
    identity: 'rank 0',
    clusterId: '',
    context: [],
    nonces: new NonceMemory(),
  });
  send(rankBodyCodec.encode({ challenge: { ...proof.challenge } }));
  const { challenge } = await receive();
  if (!challenge) throw new Error('no challenge');
  proof.takeChallenge(challenge);
  send(rankBodyCodec.encode({ proof: { mac: proof.proof() } }));
  const answer = await receive();
  if (!answer.proof) throw new Error('no proof');
  const session = proof.takeProof(answer.proof.mac);
  const { createHmac } = await import('node:crypto');
  const frameFor = (sequence: number, text: string) => {
    const body = Buffer.from(text);
    const prefix = Buffer.alloc(8);
    prefix.writeUInt32LE(sequence, 0);
    const mac = createHmac('sha256', session.diallerKey).update(prefix).update(body).digest();
    return frameCodec.encode({ sequence, mac, body });
  };
  return { stream, frameFor };
}
