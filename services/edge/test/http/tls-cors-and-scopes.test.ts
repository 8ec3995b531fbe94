/** TLS with reload and HSTS, CORS by configuration, and capabilities that are checked before a fill begins. */
import assert from 'node:assert/strict';
import { copyFile, mkdir, writeFile } from 'node:fs/promises';
import type { IncomingHttpHeaders } from 'node:http';
import { Agent, request } from 'node:https';
import { join } from 'node:path';
import type { TLSSocket } from 'node:tls';
import { after, test } from 'node:test';
import { eventually, tempDir } from '@ron/testkit';
import { answer, authority, originOf, removeFiles, startFilling } from '../fill/support.ts';
import { makePmtiles } from '../packs/make-pmtiles.ts';
import { startService } from '../support.ts';

after(removeFiles);

const PAGE = 'https://map.example.org';
const TILE = '/edge/assets/pack/p/0/0/0.png';

async function packDir() {
  const temp = await tempDir();
  await mkdir(join(temp.path, 'packs'));
  const pack = makePmtiles({ tiles: [{ z: 0, x: 0, y: 0, bytes: Buffer.from('tile') }], type: 'png' });
  await writeFile(join(temp.path, 'packs', 'p.pmtiles'), pack);
  return temp;
}

interface SecureReply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly serial: string;
  readonly body: string;
}

function secureGet(url: string, path: string): Promise<SecureReply> {
  const options = { ca: authority.pem, servername: 'localhost', agent: new Agent({ maxCachedSessions: 0 }) };
  return new Promise((resolve, reject) => {
    const req = request(`${url}${path}`, options, (res) => {
      const serial = (res.socket as TLSSocket).getPeerCertificate().serialNumber;
      res.setEncoding('utf8');
      let body = '';
      res.on('data', (text: string) => (body += text));
      res.on('end', () => resolve({ status: res.statusCode!, headers: res.headers, serial, body }));
    });
    req.on('error', reject);
    req.end();
  });
}

test('over TLS every answer has HSTS, TileJSON has https URLs, and a reload takes a new certificate', async () => {
  await using temp = await packDir();
  const files = { cert: join(temp.path, 'cert.pem'), key: join(temp.path, 'key.pem') };
  const save = async (): Promise<void> => {
    const { cert, key } = authority.issue({ names: 'DNS:localhost,IP:127.0.0.1' });
    await writeFile(files.cert, cert);
    await writeFile(files.key, key, { mode: 0o600 });
  };
  await save();
  const flags = [`--tls.cert_file=${files.cert}`, `--tls.key_file=${files.key}`];
  await using service = await startService({ dir: temp.path, flags });
  assert.match(service.url, /^https:/);
  await eventually('the pack is mounted', () => service.edge.packs.list().length === 1);
  const first = await secureGet(service.url, TILE);
  assert.equal(first.status, 200);
  for (const path of [TILE, TILE, '/edge/assets/pack/none.json', '/readyz'])
    assert.match(String((await secureGet(service.url, path)).headers['strict-transport-security']), /max-age=31536000/);
  const { body } = await secureGet(service.url, '/edge/assets/pack/p.json');
  assert.deepEqual(JSON.parse(body).tiles, [`${service.url}/edge/assets/pack/p/{z}/{x}/{y}.png`]);
  await save();
  await service.reload(flags);
  const second = await secureGet(service.url, TILE);
  assert.notEqual(second.serial, first.serial);
  await copyFile(files.cert, files.key);
  await assert.rejects(service.reload(flags));
  assert.equal((await secureGet(service.url, TILE)).serial, second.serial, 'the pair in force stays');
});

test('pages of cors.origins may read assets, and a reload changes the list', async () => {
  await using temp = await packDir();
  for (const more of [[], ['--edge.fast_path=false']]) {
    await using service = await startService({ dir: temp.path, flags: more });
    await eventually('the pack is mounted', () => service.edge.packs.list().length === 1);
    const allowedFor = async (path: string, method = 'GET'): Promise<unknown> =>
      (await service.send(method, path, { headers: { origin: PAGE } })).headers['access-control-allow-origin'];
    assert.equal(await allowedFor(TILE), undefined, 'deny by default');
    await service.reload([...more, `--cors.origins=${PAGE}`]);
    for (const path of [TILE, TILE, '/edge/assets/pack/p.json', '/edge/assets/pack/none.json'])
      assert.equal(await allowedFor(path), PAGE, path);
    assert.equal(await allowedFor(TILE, 'OPTIONS'), PAGE);
    assert.equal(await allowedFor('/edge/packs'), undefined, 'routes for operators are not readable');
    await service.reload(more);
    assert.equal(await allowedFor(TILE), undefined);
  }
});

test('with auth.reads a read needs edge:get, which is checked before a fill begins', async () => {
  let requests = 0;
  await using origin = await originOf((socket) => {
    requests += 1;
    socket.write(answer('x', 'cache-control: max-age=60'));
  });
  await using service = await startFilling(origin, { flags: ['--auth.reads=true'] });
  const get = (headers: Readonly<Record<string, string>>) => service.get('/a.png', { ...headers });
  assert.equal((await get({})).status, 401);
  assert.equal((await get(await service.allow({ scopes: ['edge:admin'] }))).status, 403);
  assert.equal(requests, 0);
  assert.equal(await service.metric('queue_depth{queue="work"}'), 0);
  const allowed = await service.allow({ scopes: ['edge:get'] });
  assert.equal((await get({ ...allowed })).status, 200);
  await eventually('it is in memory', async () =>
    String((await get({ ...allowed })).headers['cache-status']).includes('detail=ram'),
  );
  assert.equal((await get({})).status, 401, 'an asset in memory needs it too');
  assert.equal(requests, 1);
  const options = await service.send('OPTIONS', service.pathOf('/a.png'));
  assert.equal(options.status, 204, 'a preflight has no capability');
});
