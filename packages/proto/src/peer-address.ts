/** The address of a peer of the DHT: `/ip4/192.0.2.1/tcp/7108/p2p/<peer id>`, or with `ip6`, `dns4`, `dns6` or `dns`. */

const FORMAT =
  /^\/(ip4|ip6|dns4|dns6|dns)\/([0-9A-Za-z.:-]{1,253})\/tcp\/([1-9]\d{0,4})\/p2p\/([1-9A-HJ-NP-Za-km-z]{40,64})$/;
const IP4 = /^(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?!$)|$)){4}$/;
const PORT_MAX = 65_535;

export interface PeerAddress {
  readonly kind: 'ip' | 'dns';
  readonly host: string;
  readonly port: number;
  readonly peer_id: string;
}

/** Undefined if it is malformed. That the peer id decodes is not checked. */
export function parsePeerAddress(text: string): PeerAddress | undefined {
  const [, protocol, host, digits, peer_id] = FORMAT.exec(text) ?? [];
  if (protocol === undefined || !isHost(protocol, host!) || Number(digits) > PORT_MAX) return undefined;
  return { kind: protocol.startsWith('ip') ? 'ip' : 'dns', host: host!, port: Number(digits), peer_id: peer_id! };
}

function isHost(protocol: string, host: string): boolean {
  if (protocol === 'ip4') return IP4.test(host);
  if (protocol === 'ip6') return host.includes(':') && URL.canParse(`http://[${host}]`);
  return !host.includes(':');
}
