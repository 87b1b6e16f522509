import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** The genuine mqadmin without a JVM for each command.
 *
 * A line on standard input is a command, its words in base64 with spaces between them; the answer is
 * one line: what the command printed, on both streams, in base64.
 */
public class AdminCommands {
    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        Thread commands = Thread.currentThread();
        Thread hurry = new Thread(() -> hurry(commands));
        hurry.setDaemon(true);
        hurry.start();
        answers.println("ready");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String[] words = line.split(" ");
            for (int i = 0; i < words.length; i++) {
                words[i] = new String(Base64.getDecoder().decode(words[i]), StandardCharsets.UTF_8);
            }
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream paper = new PrintStream(printed, true, "UTF-8");
            System.setOut(paper);
            System.setErr(paper);
            try {
                MQAdminStartup.main0(words, null);
            } catch (Throwable fault) {
                fault.printStackTrace();
            }
            System.setOut(answers);
            answers.println("= " + Base64.getEncoder().encodeToString(printed.toByteArray()));
        }
        System.exit(0);
    }

    /** A command that ends waits up to three seconds for a thread that waits for events. */
    private static void hurry(Thread commands) {
        while (true) {
            for (StackTraceElement frame : commands.getStackTrace()) {
                if (frame.getClassName().endsWith(".ServiceThread") && frame.getMethodName().equals("shutdown")) {
                    wake("NettyEventExecutor");
                    break;
                }
            }
            try {
                Thread.sleep(50);
            } catch (InterruptedException over) {
                return;
            }
        }
    }

    private static void wake(String name) {
        Thread[] all = new Thread[Thread.activeCount() + 64];
        int count = Thread.enumerate(all);
        for (int i = 0; i < count; i++) {
            if (all[i].getName().startsWith(name)) {
                all[i].interrupt();
            }
        }
    }
}
