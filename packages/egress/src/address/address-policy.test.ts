import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AddressPolicy } from './address-policy.ts';

test('public addresses may be dialled, others only in networks that were opened', () => {
  const none = new AddressPolicy([]);
  assert.equal(none.refusal('8.8.8.8'), undefined);
  assert.equal(none.refusal('127.0.0.1'), 'loopback');
  assert.equal(none.refusal('localhost'), 'not_an_address');
  const some = new AddressPolicy(['127.0.0.0/8', 'fd12::/16']);
  for (const address of ['127.0.0.1', '127.255.0.1', 'fd12::1', '8.8.8.8'])
    assert.equal(some.refusal(address), undefined);
  for (const address of ['10.0.0.1', '::1', '::ffff:127.0.0.1', '::127.0.0.1', 'fd13::1', '2002:7f00:1::'])
    assert.notEqual(some.refusal(address), undefined, address);
});

test('a metadata address is opened only by its own entry', () => {
  const wide = new AddressPolicy(['169.254.0.0/16', '0.0.0.0/0', '::/0', '168.63.129.0/24']);
  for (const address of ['169.254.169.254', '100.100.100.200', 'fd00:ec2::254', '168.63.129.16'])
    assert.equal(wide.refusal(address), 'metadata');
  assert.equal(wide.refusal('169.254.1.1'), undefined);
  assert.equal(new AddressPolicy(['169.254.169.254/32']).refusal('169.254.169.254'), undefined);
  assert.equal(new AddressPolicy(['fd00:ec2::254']).refusal('fd00:ec2::254'), undefined);
});

test('plain HTTP needs an opened network even for a public address', () => {
  assert.equal(new AddressPolicy([]).isOpened('8.8.8.8'), false);
  assert.equal(new AddressPolicy(['8.8.8.0/24']).isOpened('8.8.8.8'), true);
  assert.equal(new AddressPolicy(['8.8.8.0/24']).isOpened('junk'), false);
});

test('entries that are not networks, and too many, are refused', () => {
  for (const entry of ['', 'localhost', '10.0.0.1/8', '10.0.0.0/33'])
    assert.throws(() => new AddressPolicy([entry]), { code: 'validation' });
  assert.throws(() => new AddressPolicy(Array<string>(257).fill('10.0.0.0/8')), { code: 'validation' });
});
