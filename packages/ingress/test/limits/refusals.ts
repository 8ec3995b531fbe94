/** Assertions about refusals that the tests of limits share. */
import assert from 'node:assert/strict';
import type { Reply } from '@ron/testkit/service';
import type { TestService } from '../support.ts';

/** Every refusal is a complete problem, with `Retry-After` exactly on 429 and 503. */
export function assertRefusal(reply: Reply, status: number, code: string): void {
  assert.equal(reply.status, status, reply.text);
  assert.equal(reply.headers['content-type'], 'application/problem+json');
  assert.equal(reply.problem?.code, code);
  assert.equal(reply.problem?.status, status);
  assert.equal(reply.problem?.corr_id, reply.headers['x-corr-id']);
  const waits = status === 429 || status === 503;
  assert.equal(reply.headers['retry-after'] !== undefined, waits, 'Retry-After exactly on 429 and 503');
  if (waits) assert.match(reply.headers['retry-after']!, /^[1-9]\d*$/);
}

export async function assertCounted(service: TestService, series: string, at_least = 1): Promise<void> {
  const count = await service.metric(series);
  assert.ok(count >= at_least, `${series} is ${count}`);
}
