/** Services with several directories, for tests about volumes. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { realFileSystem, type FileSystem } from '@ron/log';
import { bytesOf, eventually, KIB } from '@ron/testkit';
import { type Json, type Reply } from '@ron/testkit/service';
import { startService, type ServiceInit, type TestService } from './support.ts';

export const RF2 = [
  '--durability.replication_factor=2',
  '--durability.repair_interval=1s',
  '--storage.cache_bytes=1MiB',
];

export async function started(dirs: readonly string[], init: ServiceInit = {}): Promise<TestService> {
  return await startService({ dirs, flags: [...RF2, '--storage.fast_path=false'], ...init });
}

/** Stores small and large objects. */
export async function fill(service: TestService, count: number, seed = 0): Promise<Buffer[]> {
  const objects = Array.from({ length: count }, (_, index) =>
    bytesOf(index % 3 === 0 ? 300 * KIB : 5000, seed + index + 1),
  );
  for (const bytes of objects) await service.put(bytes);
  return objects;
}

/** Repairs until an inventory shows no deficit. */
export async function repaired(service: TestService): Promise<void> {
  const { id } = await service.ask('POST', '/admin/repair');
  const state = async (): Promise<string> => (await service.ask('GET', `/admin/tasks/${id}`)).state;
  await eventually('the repair ends', async () => (await state()) !== 'running');
  assert.equal(await state(), 'done');
}

export async function volume(service: TestService, name: string): Promise<Json> {
  const { volumes } = await service.ask('GET', '/admin/volumes');
  return volumes.find((each: { name: string }) => each.name === join(service.dir, name));
}

export const nameOf = (service: TestService, name: string): string => encodeURIComponent(join(service.dir, name));

export async function decide(service: TestService, verb: string, name: string): Promise<Reply> {
  return await service.send('POST', `/admin/volumes/${verb}?volume=${nameOf(service, name)}`, {
    headers: await service.allow(),
  });
}

export const reasonIn = (text: string): string =>
  JSON.parse(text).gates.find((each: Json) => each.gate === 'durability').reason ?? '';

/** A file system whose calls in one directory take 1.5 s each while `disk.isSlow`: alone within the time limit of a disk. */
export function slowDirectory(dir: string): { fs: FileSystem; disk: { isSlow: boolean; calls: number } } {
  const disk = { isSlow: false, calls: 0 };
  const slowly = async (path: string): Promise<void> => {
    if (!path.startsWith(dir)) return;
    disk.calls += 1;
    if (disk.isSlow) await new Promise((resolve) => setTimeout(resolve, 1500));
  };
  const fs: FileSystem = Object.assign(Object.create(realFileSystem) as FileSystem, {
    makeDir: (path: string) => slowly(path).then(() => realFileSystem.makeDir(path)),
    list: (path: string) => slowly(path).then(() => realFileSystem.list(path)),
    create: (path: string) => slowly(path).then(() => realFileSystem.create(path)),
    open: (path: string, access: 'read' | 'write') => slowly(path).then(() => realFileSystem.open(path, access)),
    identity: (path: string) => slowly(path).then(() => realFileSystem.identity!(path)),
  });
  return { fs, disk };
}
