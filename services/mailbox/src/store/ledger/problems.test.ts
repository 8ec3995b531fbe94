/** The list of problems is bounded, its hash covers all of them, and an acceptance of more than the list excuses all. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { CrashFileSystem } from '@ron/log/testing';
import { messageOf, openNaive } from '../testing/make.ts';
import { writeAcceptance } from './accept.ts';
import { Problems } from './problems.ts';

test('a list of problems is bounded, and its hash names all of them', () => {
  const of = (count: number, last: string): Problems => {
    const problems = new Problems();
    for (let index = 0; index < count; index++) problems.add(`problem ${index}`);
    problems.add(last);
    return problems;
  };
  const report = of(5000, 'a').report()!;
  assert.ok(report.items.length <= 64 && report.items.length + report.more === 5001);
  assert.ok(report.text.length < 10_000);
  assert.notEqual(report.sha256, of(5000, 'b').report()!.sha256);
  assert.equal(report.sha256, of(5000, 'a').report()!.sha256);
  assert.equal(new Problems().report(), undefined);
});

test('more lost records than the list can hold are accepted together, and later damage is not', async () => {
  const disk = new CrashFileSystem();
  const { log, state } = await openNaive(disk);
  for (let round = 0; round < 300; round++) await log.appendMessages([messageOf('a', round % 200)], NEVER);
  const places = [...state.messages.values()].map(({ place }) => place);
  const path = log.segments.files.path(places[0]!.segment);
  await log.close();
  const damage = (offset: number): void =>
    disk.damage(path, (bytes) => bytes.with(offset + 12, bytes[offset + 12]! ^ 0xff));
  for (let index = 0; index < 200; index += 2) damage(places[index]!.offset);
  const broken = await openNaive(disk);
  assert.ok(broken.log.problem!.more > 0);
  await broken.log.close();
  await writeAcceptance('/mailbox', { problem_sha256: broken.log.problem!.sha256, reason: 'rot' }, disk);
  for (let start = 0; start < 2; start++) {
    const after = await openNaive(disk);
    assert.equal(after.log.problem, undefined);
    assert.equal(after.state.messages.size, 200);
    await after.log.close();
  }
  damage(places[250]!.offset);
  const again = await openNaive(disk);
  // The record lies before the acceptance, but the totals count its message.
  assert.match(again.log.problem!.text, /topic a: 200 waiting/);
  assert.equal(again.log.problem!.more, 0);
  await again.log.close();
});
