/**
 * To whom capabilities are issued. A node issues to its owner and its services itself; other subjects get theirs from
 * passport, which does not issue under these names: so the name tells where a capability came from.
 */
export const OWNER_SUBJECT = 'owner';
export const ROOT_SUBJECT = 'root';
const SERVICE_SUBJECT = 'svc-';

export function serviceSubject(service: string): string {
  return `${SERVICE_SUBJECT}${service}`;
}

/** Whether it is a service of this node. */
export function isServiceSubject(subject: string): boolean {
  return subject.startsWith(SERVICE_SUBJECT);
}

/** Whether it is the node's own: its owner or one of its services. */
export function isNodeSubject(subject: string): boolean {
  return subject === OWNER_SUBJECT || subject === ROOT_SUBJECT || isServiceSubject(subject);
}
