/** The address of this machine towards another one. Sends nothing: connecting a UDP socket only chooses a route. */
import { createSocket } from 'node:dgram';
import { isIPv6 } from 'node:net';

/** Any port will do. */
const PORT = 9;

/** Undefined if there is no route. */
export async function hostTowards(other: string): Promise<string | undefined> {
  const socket = createSocket(isIPv6(other) ? 'udp6' : 'udp4');
  try {
    await new Promise<void>((resolve, reject) => {
      socket.once('error', reject);
      socket.connect(PORT, other, resolve);
    });
    return socket.address().address;
  } catch {
    return undefined;
  } finally {
    socket.close();
  }
}
