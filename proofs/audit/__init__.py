"""`make audit`: licences and known vulnerabilities of the locked dependencies, and a software bill of materials."""
