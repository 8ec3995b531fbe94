import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadConfig } from '@ron/config';
import { Deadline, isRonError } from '@ron/kernel';
import { schema } from '../../config.ts';
import { parseLive } from '../live-path.ts';
import { Origins } from './origins.ts';

test('a fetch that has ended is not remembered', async () => {
  const flags = ['--data_dir=unused', '--edge.mode=live', '--fill.allow=https://a.example'];
  const config = loadConfig({ schema, flags, env: {} });
  const lookup = Promise.withResolvers<readonly string[]>();
  await using origins = new Origins({
    config: () => config,
    cache: { writer: () => assert.fail('no body arrives') },
    ca: undefined,
    breaker: undefined,
    total_ms: 5000,
    onRetry: () => undefined,
    onTimeout: () => undefined,
    network: { lookup: () => lookup.promise },
  });
  const fetching = origins.fetch(parseLive('a.example/b', {}, []), undefined, Deadline.unlimited('test', {}));
  assert.equal(origins.size, 1);
  lookup.resolve([]);
  await assert.rejects(fetching, (error) => isRonError(error, 'bad_gateway'));
  assert.equal(origins.size, 0);
});
