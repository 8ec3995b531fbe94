/** The parts of the store that the command line uses on the directory of a mailbox. They load no service. */
export { writeAcceptance, type Acceptance } from './ledger/accept.ts';
export { proveDirectory, type ProveInit } from './ledger/prove.ts';
