import { AMNESIA, startService } from '../support.ts';
import { mailboxContract } from './suite.ts';

mailboxContract('mailbox on disk', () => startService());
mailboxContract('mailbox in memory', () => startService({ flags: AMNESIA }));
