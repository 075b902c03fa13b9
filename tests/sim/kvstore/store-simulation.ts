// One seed of the store's simulation: a random life, then repair, then the last checks.
import { type Counts, World } from './world.ts';

const ACTIONS = 250;

export async function simulateStore(seed: number): Promise<Counts> {
  const world = new World(seed);
  await world.startAll();
  const actions = ACTIONS + world.prng.below(ACTIONS);
  for (let count = 0; count < actions; count += 1) {
    if (world.rotten && world.prng.chance(0.03)) rot(world);
    await act(world);
  }
  await world.settle();
  return world.counts;
}

async function act(world: World): Promise<void> {
  const { prng } = world;
  // Mostly the mail goes out before anything else happens; a calm world sees commits, a wild one does not.
  if (world.mailCount > 0 && prng.chance(world.calm)) return world.deliver();
  if (world.isDown && prng.chance(0.4)) return world.startAll();
  const draw = prng.below(100);
  if (draw < 55) return world.request();
  if (draw < 65) return world.tick();
  if (draw < 69) return world.startEpoch();
  if (draw < 72) return world.crash('store', prng.chance(0.5));
  if (draw < 76) return world.crash(anyRank(world), prng.chance(0.5));
  if (draw < 84) return world.startAll();
  if (draw < 90) return trouble(world);
  if (draw < 92) return world.secondStore();
  if (draw < 93) return world.wrongRoot();
  if (draw < 94) return world.wrongShards(anyRank(world));
}

function anyRank(world: World) {
  const rank = world.ranks[world.prng.below(world.ranks.length)];
  if (rank === undefined) throw new Error('a world has ranks');
  return rank;
}

async function trouble(world: World): Promise<void> {
  const { prng } = world;
  const disk = prng.chance(0.4) ? world.rootDisk : anyRank(world).disk;
  const kind = prng.below(5);
  if (kind === 4) world.rootDisk.failNextReadUnder('/kv/manifests');
  else if (kind === 3) world.rootDisk.failNextSyncOf('/kv/manifests');
  else if (kind === 0) disk.cutPowerAfter(1 + prng.below(25));
  else if (kind === 1) disk.failNextSyncs(1 + prng.below(2));
  else disk.capacity = disk.capacity === 1 << 30 ? prng.below(400_000) : 1 << 30;
}

function rot(world: World): void {
  const { prng } = world;
  const disk = prng.chance(0.5) ? world.rootDisk : anyRank(world).disk;
  // Identities are not part of the claim: a damaged one is refused at start, loudly.
  const files = disk.paths().filter((path) => /\.(seg|man|journal)$/.test(path));
  const path = files[prng.below(Math.max(1, files.length))];
  const other = files[prng.below(Math.max(1, files.length))];
  if (path === undefined || other === undefined) return;
  const kind = prng.below(3);
  for (const each of [path, other]) if (disk === world.rootDisk) world.touched.add(each);
  disk.rot(path, (bytes) => {
    if (kind === 0) return bytes.subarray(0, prng.below(bytes.length + 1));
    if (kind === 1) {
      const at = prng.below(Math.max(1, bytes.length));
      bytes[at] = (bytes[at] ?? 0) ^ (1 << prng.below(8));
      return bytes;
    }
    let swapped = bytes;
    disk.rot(other, (theirs) => {
      swapped = theirs;
      return bytes;
    });
    return swapped;
  });
}
